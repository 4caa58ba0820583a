#!lua
-- add: put URLs into a partition. Without a fence: any session may add. Idempotent. Refused when out of memory.
-- KEYS  meta
-- ARGV  run, default delay (ms), msgpack list of URLs (see _add.lua), hint channel prefix, session of the adder,
--       1 when the crawl has a limit on depth, msgpack of the add quotas (see _add.lua), the crawl's hash key
-- returns {digits, woken}: for each URL 1 new, 0 seen, 2 depth lowered; number of sleeping queues that woke
keep_hash_key(ARGV[8])
local default_delay, budgets = tonumber(ARGV[2]), cmsgpack.unpack(ARGV[7])
local digits = add_items(list_of(ARGV[3]), 1, ARGV[1], default_delay, ARGV[6] == '1', budgets)
enter_all(default_delay, budgets)
local woken = close_queues()
write_added(ARGV[1])
write_seeds()
hint(woken, ARGV[4], ARGV[5])
return {digits, woken}
