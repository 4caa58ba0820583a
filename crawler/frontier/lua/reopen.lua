#!lua
-- reopen: forget URLs that are done, so that they can be added and fetched again, and take what their commits count out of the
-- counters, and their entries out of the log: the next owner would write them into an index again. For a rebuild whose pages
-- can't be read any more; without a fence, because no session works then. The caller knows that none of them is pending.
-- Idempotent.
-- KEYS  meta
-- ARGV  run, msgpack list of {fingerprint, queue, status class, bytes, fetch (ms), seed or run, items, lost, url}
-- returns how many were known
local run, forgotten, gone, logged = ARGV[1], {}, {}, {}
for _, item in ipairs(cmsgpack.unpack(ARGV[2])) do
  local of = run_named(item[6], run)
  local seen = seen_set(of)
  if is_seen(seen, item[1]) then
    unsee(seen, item[1])
    logged[#logged + 1] = item[1] .. ':1'
    gone[of] = (gone[of] or 0) + 1
    local r = record_of(item[2])
    add_to(r, URLS, -1)
    if is_run(of) then
      count_in(r, 'run_urls', -1)
      count(ctx.total, 'run_urls', -1)
    end
    if r[URLS] == 0 then count(ctx.total, 'queues', -1) end
    count_seed(item[6], ADDED, -1)
    count_seed(item[6], DONE, -1)
    count_page(r, item[6], item[3], item[4], item[7], -1)
    forgotten[#forgotten + 1] = {
      queue = item[2], class = item[3], bytes = item[4], fetch_ms = item[5], items = item[7], lost = item[8], url = item[9],
    }
  end
end
if #forgotten > 0 then
  count_done(forgotten, -1)
  count(ctx.total, 'added', -#forgotten)
  for of, n in pairs(gone) do count(ctx.total, 'seen' .. of, -n) end
  close_call()
  run_many(logged, 'HDEL', ctx.prefix .. 'l')
end
return #forgotten
