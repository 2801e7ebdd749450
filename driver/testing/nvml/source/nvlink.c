/* NVLinks between cards, or from cards to a switch. */

#include <stdio.h>

#include "handles.h"

enum { REMOTE_CARD = 0, REMOTE_SWITCH = 2 };                   /* NVML_NVLINK_DEVICE_TYPE_* */
enum { CAP_P2P = 0, CAP_P2P_ATOMICS = 2, CAP_VALID = 5, CAP_COUNT = 6 }; /* NVML_NVLINK_CAP_* */

/* NVML_NVLINK_MAX_LINKS of nvml.h 13, for all architectures: the capability of each is answered, also of numbers that the
   card does not have (seen on a B200, NVIDIA/TensorRT-LLM#19210). */
enum { LINK_NUMBERS = 36 };

#define SWITCH_BUS 0xc1           /* of the PCI address of the switch, where no card is */
#define SWITCH_DEVICE 0x22a310deu /* pci.ids: GH100 [H100 NVSwitch] */

/* The version of NVLink of an architecture (NVML_NVLINK_VERSION_*): 3.0, 4.0, 5.0. */
enum { AMPERE = 7, HOPPER = 9, NVLINK_3_0 = 4, NVLINK_4_0 = 6, NVLINK_5_0 = 7 };

static nvmlReturn_t find_link(nvmlDevice_t device, unsigned number, struct found *found, const struct nvlink **link) {
    nvmlReturn_t result = find_card(device, found);
    if (result != NVML_SUCCESS)
        return result;
    if (found->card->n_nvlinks == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    if (number >= found->card->n_nvlinks)
        return NVML_ERROR_INVALID_ARGUMENT;
    *link = &found->card->nvlinks[number];
    return NVML_SUCCESS;
}

/* A link to a card that is away is down, and each link of a card in MIG mode is reported as down (DCGM, DcgmTopology.cpp). */
static int is_active(const struct card *card, const struct nvlink *link) {
    return link->is_on && !card->mig_current &&
           (link->remote < 0 || machine->cards[link->remote].presence == PRESENT);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned number, unsigned *state) {
    const struct nvlink *link;
    struct found found;
    ENTER();
    NEEDS(state);
    LEAVE_ON_ERROR(find_link(device, number, &found, &link));
    *state = is_active(found.card, link);
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned number, unsigned *version) {
    const struct nvlink *link;
    struct found found;
    ENTER();
    NEEDS(version);
    LEAVE_ON_ERROR(find_link(device, number, &found, &link));
    unsigned architecture = found.card->architecture;
    *version = architecture <= AMPERE ? NVLINK_3_0 : architecture <= HOPPER ? NVLINK_4_0 : NVLINK_5_0;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned number, unsigned capability,
                                                  unsigned *is_there) {
    struct found found;
    ENTER();
    NEEDS(is_there && capability < CAP_COUNT);
    LEAVE_ON_ERROR(find_card(device, &found));
    const struct card *card = found.card;
    if (card->n_nvlinks == 0)
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    if (number >= LINK_NUMBERS)
        LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    int is_known = capability == CAP_P2P || capability == CAP_P2P_ATOMICS || capability == CAP_VALID;
    *is_there = is_known && (number >= card->n_nvlinks || is_active(card, &card->nvlinks[number]));
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned number, unsigned *type) {
    const struct nvlink *link;
    struct found found;
    ENTER();
    NEEDS(type);
    LEAVE_ON_ERROR(find_link(device, number, &found, &link));
    if (!is_active(found.card, link))
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    *type = link->remote < 0 ? REMOTE_SWITCH : REMOTE_CARD;
    LEAVE(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned number, nvmlPciInfo_t *pci) {
    const struct nvlink *link;
    struct found found;
    ENTER();
    NEEDS(pci);
    LEAVE_ON_ERROR(find_link(device, number, &found, &link));
    if (!is_active(found.card, link))
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    static const struct card at_the_switch = {.pci_bus = SWITCH_BUS, .pci_device_id = SWITCH_DEVICE};
    describe_pci(link->remote < 0 ? &at_the_switch : &machine->cards[link->remote], pci);
    LEAVE(NVML_SUCCESS);
}
