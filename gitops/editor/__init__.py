"""What an editor asks about the texts of a cluster folder: pure functions from texts and offsets to values."""
