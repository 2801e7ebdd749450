"""The controller: one per cluster. It compiles ResourceClasses into DeviceClasses and says what became of them."""
