"""Who signed what came in, and whether it may count. The only part of the pipeline that does cryptography."""
