// Prints what nvml-wrapper, the bindings of Rust, reads of each card and its MIG devices: name, UUID, memory.
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

fn describe(device: &Device) -> Result<String, NvmlError> {
    Ok(format!("{} {} {}", device.uuid()?, device.memory_info()?.total, device.name()?))
}

fn main() -> Result<(), NvmlError> {
    let nvml = Nvml::init()?;
    for index in 0..nvml.device_count()? {
        let card = nvml.device_by_index(index)?;
        println!("{}", describe(&card)?);
        for number in 0..card.mig_device_count()? {
            match card.mig_device_by_index(number) {
                Ok(device) => println!("{}", describe(&device)?),
                Err(NvmlError::NotFound) => continue,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
