#!lua
-- requeue_dead: add URLs that were given up again, as if they had never been seen, and delete their dead letters. Without a
-- fence: an operator may do it at any time. Idempotent: URLs without a dead letter are skipped. Refused when out of memory.
-- KEYS  meta
-- ARGV  as for add
-- returns {number of URLs, number of sleeping queues that woke}
local run, items = ARGV[1], {}
local seen, given, n = seen_set(run), list_of(ARGV[3]), 0
for i = 1, #given, ITEM do
  local fp = given[i]
  if call('HDEL', P .. 'dead', fp) == 1 then
    unsee(seen, fp)
    for j = i, i + ITEM - 1 do items[#items + 1] = given[j] end
    n = n + 1
  end
end
if n == 0 then return {0, 0} end
count(total, 'seen' .. run, -n)
local default_delay, no_budgets = tonumber(ARGV[2]), {0, 0, 0}
add_items(items, 1, run, default_delay, ARGV[6] == '1', no_budgets)
enter_all(default_delay, no_budgets) -- the operator's command overrides quotas
for i = 1, #items, ITEM do
  local r, seed = record_of(items[i + 1]), items[i + 8]
  count_in(r, 'dead', -1)
  add_to(r, URLS, -1) -- it was counted when it was first added
  count_seed(seed, ADDED, -1)
  count_seed(seed, DEAD, -1)
end
-- done only grows, so it stays; revived counts the URLs that were done once and are pending or done again.
count(total, 'dead', -n)
count(total, 'revived', n)
local woken = close_queues()
write_added(run)
write_seeds()
hint(woken, ARGV[4], ARGV[5])
return {n, woken}
