-- Count commits that are read back from disk: {queue, class, bytes, fetch_ms, items, lost, url} each. lost: the total of what
-- is missing of the page at url, '' for most. n: 1, or -1 to take them back.
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
    if one.lost ~= '' then
      count(ctx.total, one.lost, n)
      count_in(r, one.lost, n)
      if n > 0 then Losses.keep(one.lost, one.url) end
    end
    r.has_pages = r.has_pages or n > 0
  end
end
