-- question: How much does each table hold, how far back does it reach, and when does the next row expire?
-- param table:String = | only tables whose name begins with this; empty: all
-- example: rootrank query storage --param table=raw_lines
SELECT
    t.name AS table, ifNull(p.rows, 0) AS rows, formatReadableSize(ifNull(p.bytes, 0)) AS size_on_disk,
    ifNull(p.bytes, 0) AS bytes_on_disk, ifNull(p.parts, 0) AS parts,
    -- Days before 2000 are those of replays and of clocks that were never set.
    if(p.oldest_day > toDate('2000-01-01'), p.oldest_day, NULL) AS oldest_day,
    if(p.next_expiry > toDateTime(0), p.next_expiry, NULL) AS next_row_expires_at,
    extract(t.engine_full, 'TTL (.+?)(?: SETTINGS .*)?$') AS ttl
FROM system.tables AS t
LEFT JOIN
(
    SELECT
        table, sum(rows) AS rows, sum(bytes_on_disk) AS bytes, count() AS parts,
        minIf(min_date, min_date > toDate('2000-01-01')) AS oldest_day, min(delete_ttl_info_min) AS next_expiry
    FROM system.parts
    WHERE database = currentDatabase() AND active
    GROUP BY table
) AS p ON p.table = t.name
WHERE t.database = currentDatabase() AND t.engine LIKE '%MergeTree' AND startsWith(t.name, {table:String})
ORDER BY bytes_on_disk DESC, table
