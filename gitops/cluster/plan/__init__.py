"""Planning: from desired and recorded resources to a plan and its execution graph."""
