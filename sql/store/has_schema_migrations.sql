SELECT count() FROM system.tables WHERE database = {database:String} AND name = 'schema_migrations'
