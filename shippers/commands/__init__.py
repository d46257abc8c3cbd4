"""Commands of `rootrank-shipper`, one file each."""
