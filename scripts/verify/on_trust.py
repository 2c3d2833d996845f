ON_TRUST: dict[str, str] = {}
