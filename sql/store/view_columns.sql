-- Columns of views and of the tables behind them, in their order.
SELECT table, name, type, comment FROM system.columns
WHERE database = currentDatabase() ORDER BY endsWith(table, '_rows'), table, position
