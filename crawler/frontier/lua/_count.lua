-- What commits that are known from disk count: {queue, class, bytes, fetch_ms} each.
local function count_done(commits)
  for _, one in ipairs(commits) do
    local r, class = record_of(one.queue), 's' .. one.class
    count(total, 'done', 1)
    count(total, class, 1)
    count(total, 'bytes', one.bytes)
    count_in(r, class, 1)
    add_to(r, BYTES, one.bytes)
    add_to(r, FETCH_MS, one.fetch_ms)
    r.has_pages = true
  end
end
