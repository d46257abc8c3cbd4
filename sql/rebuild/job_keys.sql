SELECT DISTINCT job_key FROM rebuild_batches ORDER BY job_key
