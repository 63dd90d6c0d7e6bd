"""Object stores: files under one root, on the local disk or in memory."""
