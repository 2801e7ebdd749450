"""Migration of what asks for devices in older ways to structured DRA and ``kerf.dev``. Pure.

``classic`` converts the objects of classic DRA (KEP-3063): parameters become CEL and configuration. ``akri`` converts
Akri's Configurations, ``limits`` the pods that count devices of device plugins or of Akri. ``documents`` accounts for
each document of the files, and ``extended_resources`` finds the resources that stay, with the reasons.
"""
