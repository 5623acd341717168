"""The workbench: what is on storage about tables, queries and their progress, for a browser and for Prometheus."""
