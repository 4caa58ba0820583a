#!lua
-- requeue_dead: add URLs that were given up again, as if they had never been seen, and delete their dead letters. Without a
-- fence: an operator may do it at any time. Idempotent: URLs without a dead letter are skipped, and so are those of a run that
-- is closed. Refused when out of memory.
-- KEYS  meta
-- ARGV  as for add
-- returns {number of URLs, number of sleeping queues that woke}
local run, items = ARGV[AddArgs.run], {}
if is_closed(run) then return {0, 0} end
ctx.user = ARGV[AddArgs.user]
local seen, given, n = seen_set(run), list_of(ARGV[AddArgs.urls]), 0
for at = 0, #given - 1, UrlItem.size do
  local fp = given[at + UrlItem.fingerprint]
  local dead = Losses.take_letter(fp, given[at + UrlItem.seed])
  if dead then
    leave(State.DEAD, record_of(given[at + UrlItem.queue]), dead)
    unsee(seen, fp)
    for j = at + 1, at + UrlItem.size do items[#items + 1] = given[j] end
    n = n + 1
  end
end
if n == 0 then return {0, 0} end
count(ctx.total, 'seen' .. run, -n)
count(ctx.total, 'added', -n) -- they are added again below
local default_delay, no_budget = tonumber(ARGV[AddArgs.default_delay_ms]), {0, 0, 0}
add_items(items, 1, run, default_delay, ARGV[AddArgs.is_limited] == '1', no_budget)
enter_all(default_delay, no_budget) -- the operator's command overrides budgets
for at = 0, #items - 1, UrlItem.size do
  local r, seed = record_of(items[at + UrlItem.queue]), items[at + UrlItem.seed]
  add_to(r, URLS, -1) -- it was counted when it was first added
  if items[at + UrlItem.reason] == Requisites.MARK then Requisites.meet(r, -1) end
  count_seed(seed, ADDED, -1)
end
return {n, close_call(ARGV[AddArgs.hints], ARGV[AddArgs.session])}
