"""Code that all layers share: rows, watermarks, operator reports, and steps that run at the source."""
