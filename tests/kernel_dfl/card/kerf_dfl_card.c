// SPDX-License-Identifier: GPL-2.0
/* DFL cards for a guest without any: the registers that the kernel's drivers see, in the memory of QEMU's display
 * adapters "bochs-display", whose BAR 0 is plain memory.
 *
 * The module writes the device feature list (Linux Documentation/fpga/dfl.rst) of each adapter: a management engine with
 * sensors, errors and partial reconfiguration, and two ports with errors and a function. Then it plays the card, on a
 * timer: a port's driver waits for the answer to a reset for 1 ms, which a thread may miss, while the interrupt of a
 * timer that is due comes before the driver can look at its clock again.
 *
 * Registers that are memory cannot see that they are written to. So the card knows of an image only its last 32 bits,
 * which are those of the id that its port shows afterwards, and of a clearing of a port's errors that the driver has
 * unmasked them: it forgets them then, whatever was written.
 *
 * What befalls the cards, a test writes to the module's parameters, whose comments below say what they do.
 */
#include <linux/hrtimer.h>
#include <linux/io.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/module.h>
#include <linux/pci.h>

#define CARDS 2
#define PORTS 2
#define FUNCTIONS 3
#define BAR_BYTES 0x40000
#define TICK_US 100 /* a tenth of what a port's driver waits */

#define FEATURE(type, id, next, is_last) \
	(((u64)(type) << 60) | ((u64)(is_last) << 40) | ((u64)(next) << 16) | (id))
#define AFU 1
#define PRIVATE 3
#define FIU 4

/* Of the management engine; the features follow one another */
#define THERMAL 0x1000
#define ERRORS 0x2000
#define PR 0x3000
#define FME_CAPABILITY 0x30
#define FME_PORT(number) (0x38 + 8 * (number))
#define FME_BITSTREAM 0x60
#define TEMPERATURE_LIMITS (THERMAL + 0x8)
#define TEMPERATURE (THERMAL + 0x10)
#define NONFATAL (ERRORS + 0x50)
#define PR_CONTROL (PR + 0x8)
#define PR_STATUS (PR + 0x10)
#define PR_DATA (PR + 0x18)
#define PR_ERROR (PR + 0x20)
#define PR_INTERFACE (PR + 0xa8)
#define PR_RESET BIT_ULL(0)
#define PR_RESET_ANSWER BIT_ULL(4)
#define PR_PORT(control) (((control) >> 7) & 7)
#define PR_START BIT_ULL(12)
#define PR_COMPLETE BIT_ULL(13)
#define PR_CREDIT 511
#define PR_FAILED BIT_ULL(16)

/* Of a port */
#define PORT(number) (0x10000 * ((number) + 1))
#define PORT_ERRORS 0x1000
#define FUNCTION 0x2000
#define PORT_CAPABILITY 0x30
#define PORT_CONTROL 0x38
#define PORT_RESET BIT_ULL(0)
#define PORT_RESET_ANSWER BIT_ULL(4)
#define PORT_ERROR_MASK (PORT_ERRORS + 0x8)
#define PORT_ERROR (PORT_ERRORS + 0x10)

struct card {
	struct pci_dev *device;
	u8 __iomem *registers;
	bool is_loading, is_silent;
	unsigned int ticks_left;
	bool is_reset[PORTS];
};

static struct card cards[CARDS];
static unsigned int found;
static struct hrtimer timer;

static ulong ids_high[FUNCTIONS], ids_low[FUNCTIONS]; /* the ids of all functions */
module_param_array(ids_high, ulong, NULL, 0444);
module_param_array(ids_low, ulong, NULL, 0444);
static uint first; /* which of them all ports have at first */
module_param(first, uint, 0444);
static ulong interface_high, interface_low;
module_param(interface_high, ulong, 0444);
module_param(interface_low, ulong, 0444);
static uint load_ticks = 2; /* how long a load takes, in ticks */
module_param(load_ticks, uint, 0644);
static ulong next_load_errors; /* the error bits of the next load */
module_param(next_load_errors, ulong, 0644);
static uint silent_loads; /* so many loads do not end */
module_param(silent_loads, uint, 0644);
static uint silent_resets; /* so many ticks that see a port's reset do not answer */
module_param(silent_resets, uint, 0644);
static ulong port_errors[CARDS * PORTS]; /* errors that a port logs now */
module_param_array(port_errors, ulong, NULL, 0644);
static ulong nonfatal_errors[CARDS];
module_param_array(nonfatal_errors, ulong, NULL, 0644);
static ulong loads, resets; /* so many were there */
module_param(loads, ulong, 0444);
module_param(resets, ulong, 0444);

static u64 get(struct card *card, u32 offset)
{
	return readq(card->registers + offset);
}

static void set(struct card *card, u32 offset, u64 value)
{
	writeq(value, card->registers + offset);
}

/* Let a port have a function; NULL: one that cannot be read, as while an image is loaded. */
static void set_function(struct card *card, u32 port, const ulong *high, const ulong *low)
{
	set(card, PORT(port) + FUNCTION + 8, low ? *low : ~0ULL);
	set(card, PORT(port) + FUNCTION + 16, high ? *high : ~0ULL);
}

static void write_list(struct card *card)
{
	int port;

	memset_io(card->registers, 0, BAR_BYTES);
	set(card, 0, FEATURE(FIU, 0, THERMAL, 0));
	set(card, FME_CAPABILITY, PORTS << 17);
	set(card, FME_BITSTREAM, 0x23000410010310);
	set(card, THERMAL, FEATURE(PRIVATE, 1, ERRORS - THERMAL, 0));
	set(card, TEMPERATURE_LIMITS, 100 << 24 | 95 << 8 | 85); /* emergency, critical, maximum: degrees Celsius */
	set(card, TEMPERATURE, 52);
	set(card, ERRORS, FEATURE(PRIVATE, 4, PR - ERRORS, 0));
	set(card, PR, FEATURE(PRIVATE, 5, 0, 1));
	set(card, PR_STATUS, PR_CREDIT);
	set(card, PR_INTERFACE, interface_low);
	set(card, PR_INTERFACE + 8, interface_high);
	for (port = 0; port < PORTS; port++) {
		u32 at = PORT(port);

		set(card, FME_PORT(port), at | BIT_ULL(60));
		set(card, at, FEATURE(FIU, 1, PORT_ERRORS, 0));
		set(card, at + 0x18, FUNCTION);
		set(card, at + PORT_CAPABILITY, port | 4 << 8); /* 4 KiB of a function's registers */
		set(card, at + PORT_CONTROL, PORT_RESET | PORT_RESET_ANSWER);
		set(card, at + PORT_ERRORS, FEATURE(PRIVATE, 0x10, 0, 1));
		set(card, at + FUNCTION, FEATURE(AFU, 0, 0, 1));
		set_function(card, port, &ids_high[first % FUNCTIONS], &ids_low[first % FUNCTIONS]);
	}
}

static void play_port(struct card *card, int port, ulong *errors)
{
	u32 at = PORT(port);
	u64 control = get(card, at + PORT_CONTROL);
	bool is_reset = control & PORT_RESET;

	if (is_reset && !card->is_reset[port]) {
		if (silent_resets) {
			silent_resets--;
			return;
		}
		resets++;
	}
	card->is_reset[port] = is_reset;
	if (is_reset && !(control & PORT_RESET_ANSWER))
		set(card, at + PORT_CONTROL, control | PORT_RESET_ANSWER);
	if (!is_reset && control & PORT_RESET_ANSWER)
		set(card, at + PORT_CONTROL, control & ~PORT_RESET_ANSWER);

	if (*errors) {
		set(card, at + PORT_ERROR, *errors);
		set(card, at + PORT_ERROR_MASK, 1); /* the driver leaves 0 there */
		*errors = 0;
	} else if (get(card, at + PORT_ERROR) && !get(card, at + PORT_ERROR_MASK)) {
		set(card, at + PORT_ERROR, 0);
	}
}

static void end_load(struct card *card, u64 control)
{
	if (next_load_errors) {
		set(card, PR_ERROR, next_load_errors);
		set(card, PR_STATUS, PR_CREDIT | PR_FAILED);
		next_load_errors = 0;
	} else {
		u32 last = get(card, PR_DATA);
		int function;

		for (function = 0; function < FUNCTIONS; function++)
			if ((u32)ids_low[function] == last)
				set_function(card, PR_PORT(control) % PORTS, &ids_high[function], &ids_low[function]);
		loads++;
	}
	card->is_loading = false;
	set(card, PR_CONTROL, control & ~(PR_START | PR_COMPLETE));
}

static void play_load(struct card *card)
{
	u64 control = get(card, PR_CONTROL);

	if (control & PR_RESET) {
		set(card, PR_STATUS, PR_CREDIT);
		set(card, PR_ERROR, 0);
		card->is_loading = false;
		control &= ~(PR_START | PR_COMPLETE);
		set(card, PR_CONTROL, control | PR_RESET_ANSWER);
		return;
	}
	if (control & PR_RESET_ANSWER) {
		control &= ~PR_RESET_ANSWER;
		set(card, PR_CONTROL, control);
	}
	if (control & PR_START && !card->is_loading) {
		card->is_loading = true;
		card->ticks_left = load_ticks;
		card->is_silent = silent_loads > 0;
		if (card->is_silent)
			silent_loads--;
		set_function(card, PR_PORT(control) % PORTS, NULL, NULL);
	}
	if (!(control & PR_COMPLETE))
		return;
	if (!card->is_silent && card->ticks_left-- == 0)
		end_load(card, control);
}

static enum hrtimer_restart tick(struct hrtimer *expired)
{
	int number, port;

	for (number = 0; number < found; number++) {
		play_load(&cards[number]);
		for (port = 0; port < PORTS; port++)
			play_port(&cards[number], port, &port_errors[number * PORTS + port]);
		set(&cards[number], NONFATAL, nonfatal_errors[number]);
	}
	hrtimer_forward_now(expired, ns_to_ktime(TICK_US * NSEC_PER_USEC));
	return HRTIMER_RESTART;
}

static void release_cards(void)
{
	while (found--) {
		iounmap(cards[found].registers);
		pci_disable_device(cards[found].device);
		pci_dev_put(cards[found].device);
	}
}

static int __init card_init(void)
{
	struct pci_dev *device = NULL;

	while (found < CARDS && (device = pci_get_device(0x1234, 0x1111, device))) {
		struct card *card = &cards[found];

		if (pci_enable_device(device) || !(card->registers = ioremap(pci_resource_start(device, 0), BAR_BYTES))) {
			pci_dev_put(device);
			release_cards();
			return -ENOMEM;
		}
		card->device = pci_dev_get(device); /* the search gives its own back */
		write_list(card);
		found++;
	}
	pci_dev_put(device);
	if (found < CARDS) {
		release_cards();
		return -ENODEV;
	}
	hrtimer_init(&timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	timer.function = tick;
	hrtimer_start(&timer, ns_to_ktime(TICK_US * NSEC_PER_USEC), HRTIMER_MODE_REL_HARD);
	return 0;
}

static void __exit card_exit(void)
{
	hrtimer_cancel(&timer);
	release_cards();
}

module_init(card_init);
module_exit(card_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("DFL cards of a guest, for the tests of Kerf");
