"""The fabrics of one site: every one that can be wired and that no other beats in price, power and slowdowns."""
