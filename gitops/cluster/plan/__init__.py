"""Planning: turns desired and recorded resources into a plan and its execution graph."""
