SELECT toUInt32(greatest(0, dateDiff('second', metadata_modification_time, now())))
FROM system.tables
WHERE database = {database:String} AND name = 'schema_migrations_lock'
