"""The one place that builds adapters: stores, forges, projects, from the settings of the operator."""
