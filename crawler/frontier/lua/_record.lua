-- u: hash fingerprint -> record of every pending URL, from its add to its end.
-- record = JSON [url, queue, domain, depth, redirects, seed, attempts, deliveries, visit, score]
local R_QUEUE, R_DOMAIN, R_DEPTH, R_DELIVERIES, R_SCORE = 2, 3, 4, 8, 10
