-- Per boot the line of the kernel log that was read soonest after it was made: it relates the boot clock to the wall.
SELECT
    boot_id, assumeNotNull(argMin(kernel_time_ns, lag_ns)) AS kernel_ns, argMin(observed_ns, lag_ns) AS wall_ns
FROM
(
    SELECT boot_id, kernel_time_ns, toUnixTimestamp64Nano(ObservedTimestamp) AS observed_ns, observed_ns - kernel_time_ns AS lag_ns
    FROM raw_lines
    WHERE run = 'live' AND day BETWEEN {since:Date} AND {until:Date} AND run_id = {run_id:String}
        AND cluster = {cluster:String} AND reporter = {reporter:String} AND kernel_time_ns IS NOT NULL AND observed_ns > 0
)
GROUP BY boot_id
