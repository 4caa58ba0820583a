-- What commits that are known from disk count: {domain, class, bytes, fetch_ms} each.
local function count_done(commits)
  local total, domains = {done = 0}, {}
  local function count(of, name, n) of[name] = (of[name] or 0) + n end
  for _, one in ipairs(commits) do
    local mine = domains[one.domain] or {}
    domains[one.domain] = mine
    count(total, 'done', 1)
    for _, of in ipairs({total, mine}) do
      count(of, 's' .. one.class, 1)
      count(of, 'bytes', one.bytes)
    end
    count(mine, 'fetch_ms', one.fetch_ms)
    call('ZINCRBY', P .. 'domains', 1, one.domain)
  end
  local function flat(of)
    local list = {}
    for name, n in pairs(of) do list[#list + 1], list[#list + 2] = name, n end
    return list
  end
  bump(M, flat(total))
  for domain, mine in pairs(domains) do bump(P .. 'd:' .. domain, flat(mine)) end
end
