"""Machines as a plan and an apply see them: the port to them, and how what they have is compared with what is declared."""
