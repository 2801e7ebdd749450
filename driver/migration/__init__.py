"""Migration of classic objects to structured DRA: their parameters become CEL and configuration. Pure."""
