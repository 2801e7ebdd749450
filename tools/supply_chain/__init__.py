"""What Kerf is made of: its locked dependencies, their licences, and a bill of materials (``make sbom``)."""
