-- Count commits that are read back from disk: {queue, class, bytes, fetch_ms, items, lost, url} each. lost: the total of what
-- is missing of the page at url, '' for most.
local function count_done(commits)
  for _, one in ipairs(commits) do
    local r, class = record_of(one.queue), 's' .. one.class
    count(ctx.total, 'done', 1)
    count(ctx.total, class, 1)
    count(ctx.total, 'bytes', one.bytes)
    count_in(r, class, 1)
    add_to(r, BYTES, one.bytes)
    add_to(r, FETCH_MS, one.fetch_ms)
    if one.items > 0 then
      count(ctx.total, 'items', one.items)
      count_in(r, 'items', one.items)
    end
    if one.lost ~= '' then
      count(ctx.total, one.lost, 1)
      count_in(r, one.lost, 1)
      Losses.keep(one.lost, one.url)
    end
    r.has_pages = true
  end
end
