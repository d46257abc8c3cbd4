-- Where the wall clock of a reporter stood against the reference: at the ends of the measured segments of each boot, by
-- the broker of the lowest number, and once a minute where an event was placed for certain (by a claim, for example).
SELECT boot_id, wall_ns, argMin(offset_ns, bound_ns), min(bound_ns), max(step_ns)
FROM
(
    SELECT
        boot_id, toUnixTimestamp64Nano(assumeNotNull(to_time)) - assumeNotNull(wall_offset_ns) AS wall_ns,
        assumeNotNull(wall_offset_ns) AS offset_ns,
        greatest(hi_ns, -greatest(lo_ns, -9223372036854775807)) AS bound_ns, toInt64(abs(wall_step_ns)) AS step_ns
    FROM clock_segments
    WHERE run = 'live' AND run_id = {run_id:String} AND cluster = {cluster:String} AND node = {reporter:String}
        AND quality != 'none' AND broker_id >= 0 AND wall_offset_ns IS NOT NULL
        AND toDate(to_time) BETWEEN {since:Date} - 1 AND {until:Date} + 1
        AND (boot_id, broker_id) IN
        (
            SELECT boot_id, min(broker_id) FROM clock_segments
            WHERE run = 'live' AND run_id = {run_id:String} AND cluster = {cluster:String} AND node = {reporter:String}
                AND quality != 'none' AND broker_id >= 0
            GROUP BY boot_id
        )
    UNION ALL
    SELECT
        boot_id, argMin(shown_ns, width_ns) AS wall_ns, argMin(placed_ns - shown_ns, width_ns) AS offset_ns,
        intDiv(min(width_ns), 2) + 1 AS bound_ns, 0 AS step_ns
    FROM
    (
        SELECT
            boot_id, assumeNotNull(raw_ns) AS shown_ns, toUnixTimestamp64Nano(assumeNotNull(aligned_time)) AS placed_ns,
            toUnixTimestamp64Nano(hi_time) - toUnixTimestamp64Nano(lo_time) AS width_ns
        FROM events
        WHERE run = 'live' AND day BETWEEN {since:Date} AND {until:Date} AND run_id = {run_id:String}
            AND cluster = {cluster:String} AND reporter = {reporter:String} AND quality = 'good'
            AND raw_ns IS NOT NULL AND aligned_time IS NOT NULL AND startsWith(clock_id, {reporter:String} || '/wall')
    )
    GROUP BY boot_id, intDiv(shown_ns, 60000000000)
)
GROUP BY boot_id, wall_ns
ORDER BY boot_id, wall_ns
