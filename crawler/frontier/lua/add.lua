#!lua
-- add: put URLs into a partition. Without a fence: any session may add. Idempotent. Refused when out of memory.
-- KEYS  meta
-- ARGV  run, default delay (ms), msgpack list of URLs (see _add.lua), hint channel prefix, session that needs no hint,
--       1 when the crawl has a limit on depth, msgpack of the add budgets (see _add.lua), the crawl's hash key, the user whose
--       URLs these are ('': the crawl itself)
-- returns {digits, woken}: for each URL 1 new, 0 seen, 2 depth lowered, 3 its run is closed; number of sleeping queues that woke
local run, default_delay, budget = ARGV[AddArgs.run], tonumber(ARGV[AddArgs.default_delay_ms]), cmsgpack.unpack(ARGV[AddArgs.budget])
keep_hash_key(ARGV[AddArgs.hash_key])
ctx.user = ARGV[AddArgs.user]
local digits = add_items(list_of(ARGV[AddArgs.urls]), 1, run, default_delay, ARGV[AddArgs.is_limited] == '1', budget)
enter_all(default_delay, budget)
return {digits, close_call(ARGV[AddArgs.hints], ARGV[AddArgs.session])}
