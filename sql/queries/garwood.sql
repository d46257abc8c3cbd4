-- question: Between which expected counts does a count of n events lie (Garwood, exact for a Poisson count)?
-- question: With an exposure: between which rates, and which mean times between failures.
-- param n:UInt64 | how many events were counted
-- param exposure:Float64 = 0 | time at risk, in any unit; 0: none given
-- param level:Float64 = 0.95 | confidence, two-sided
-- example: rootrank query garwood --param n=419 --param exposure=21233664
WITH
    -- The functions from here to `end` are the same wherever a query prints an interval; paste them into your own.
    -- They are lambdas and not CREATE FUNCTION, which is one name for the whole server and needs a right of its own.
    -- A Poisson count n has mean mu: ln P(n), by the deviance (Loader 2000), which keeps its digits where n is large;
    -- P(at least n) and P(at most n) as P(n) times a sum whose terms are below 1e-17 after 9 sqrt(n). Newton's steps on
    -- ln P, concave in ln mu and in mu, come to the limit from one side, from wherever they start: 8 reach it.
    -- Within 1e-11 of scipy up to n = 1e4 and 1e-9 up to 1e6; call them with a Float64 n and one tail, (1 - level) / 2.
    (n) -> if(n < 16, lgamma(n + 1) - (n + 0.5) * log(n) + n - 0.9189385332046727,
        (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / n / n) / n / n) / n / n) / n / n) / n) AS stirling_rest,
    (n, mu) -> if(n = 0, -mu, -n * ((mu - n) / n - log1p((mu - n) / n)) - stirling_rest(n)
        - 0.5 * log(6.283185307179586 * n)) AS log_poisson,
    (n) -> range(toUInt64(20 + 9 * sqrt(n))) AS enough,
    (n, mu) -> 1 + arraySum(x -> exp(x), arrayCumSum(arrayMap(i -> log(mu / (n + i + 1)), enough(n)))) AS at_least,
    (n, mu) -> 1 + arraySum(x -> exp(x), arrayCumSum(arrayMap(i -> log((n - i) / mu),
        arrayFilter(i -> i < n, enough(n))))) AS at_most,
    (n, tail) -> if(n = 0, 0., exp(arrayFold((x, i) -> x - (log_poisson(n, exp(x)) + log(at_least(n, exp(x)))
        - log(tail)) * at_least(n, exp(x)) / n, range(8), log(n)))) AS garwood_lo,
    (n, tail) -> arrayFold((mu, i) -> mu + (log_poisson(n, mu) + log(at_most(n, mu)) - log(tail)) * at_most(n, mu),
        range(8), n + 1.) AS garwood_hi,
    -- end
    throwIf(NOT ({level:Float64} > 0 AND {level:Float64} < 1 AND {exposure:Float64} >= 0),
        'level lies between 0 and 1, and no exposure is below 0') AS refused,
    toFloat64({n:UInt64}) AS events,
    (1 - {level:Float64}) / 2 AS tail
SELECT
    {n:UInt64} AS n, garwood_lo(events, tail) AS lo, garwood_hi(events, tail) AS hi,
    nullIf({exposure:Float64}, 0) AS time_at_risk, events / time_at_risk AS rate, lo / time_at_risk AS rate_lo,
    hi / time_at_risk AS rate_hi, if(events = 0, NULL, time_at_risk / events) AS mtbf, time_at_risk / hi AS mtbf_lo,
    if(events = 0, NULL, time_at_risk / lo) AS mtbf_hi
WHERE NOT refused
