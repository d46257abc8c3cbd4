SELECT number, name, toString(checksum) AS checksum, toString(applied_at) AS applied_at
FROM schema_migrations FINAL
ORDER BY number
