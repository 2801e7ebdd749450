"""What backends for FPGA cards share."""
