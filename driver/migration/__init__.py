"""Migration of classic objects (KEP-3063) to structured DRA: parameters become CEL and configuration. Pure."""
