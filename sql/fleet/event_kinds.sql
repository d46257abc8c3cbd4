-- The kinds of errors of [from_ns, to_ns): each may have a window of its own. On which days their lines were read, however
-- late, is asked first, of the index of aligned times: `FINAL` makes no use of it.
SELECT DISTINCT name, toUInt32OrNull(attributes['xid']) AS xid
FROM events
WHERE run = {run:String} AND run_id = {run_id:String} AND cluster = {cluster:String}
    AND day IN
    (
        SELECT DISTINCT day
        FROM events_rows
        WHERE run = {run:String} AND run_id = {run_id:String} AND cluster = {cluster:String}
            AND (day >= toDate(fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')) - 1 OR day = '1970-01-01')
            AND ifNull(aligned_time, if(toUnixTimestamp64Nano(observed_time) > 0, observed_time, lo_time))
                BETWEEN fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
                    AND fromUnixTimestamp64Nano({to_ns:Int64} - 1, 'UTC')
    )
    AND (role IN ('cause', 'intermediate') OR name = 'gpu.xid')
    AND ifNull(aligned_time, if(toUnixTimestamp64Nano(observed_time) > 0, observed_time, lo_time))
        BETWEEN fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC') AND fromUnixTimestamp64Nano({to_ns:Int64} - 1, 'UTC')
ORDER BY name, xid
