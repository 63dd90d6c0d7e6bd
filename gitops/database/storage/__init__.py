"""Files below one folder or objects below one prefix: create only if absent, compare and replace."""
