CREATE DATABASE IF NOT EXISTS {database:Identifier}
