-- Count commits that are read back from disk: {queue, class, bytes, fetch_ms, items, lost, url} each. lost: what is missing of
-- the page at url: numbers by total. n: 1, or -1 to take them back.
local function count_done(commits, n)
  for _, one in ipairs(commits) do
    local r, class = record_of(one.queue), 's' .. one.class
    count(ctx.total, 'done', n)
    count(ctx.total, class, n)
    count(ctx.total, 'bytes', n * one.bytes)
    count_in(r, class, n)
    add_to(r, BYTES, n * one.bytes)
    add_to(r, FETCH_MS, n * one.fetch_ms)
    if one.items > 0 then
      count(ctx.total, 'items', n * one.items)
      count_in(r, 'items', n * one.items)
    end
    for total, missing in pairs(one.lost) do
      count(ctx.total, total, n * missing)
      count_in(r, total, n * missing)
      if n > 0 then Losses.keep(total, one.url) end
    end
    r.has_pages = r.has_pages or n > 0
  end
end
