-- What URLs add to the books in a state of the table State, which crawler/frontier/states.py makes. Only `enter` and `leave`
-- change these numbers. of: seed (number of the seed, or id of the run, that the URL descends from), reason (of the state),
-- example (of a loss: the URL, or its queue where a script does not know it). n: how many URLs, one if it is not given.
local enter, leave
do
  local NOTHING = {}

  local function is_open(name) return string.byte(name, -1) == 58 end -- a colon: the reason follows

  local function named(name, of) return is_open(name) and name .. of.reason or name end

  local function book(state, r, of, n)
    for _, name in ipairs(state.totals) do count(ctx.total, named(name, of), n) end
    for _, name in ipairs(state.queue) do count_in(r, named(name, of), n) end
    if state.seed then count_seed(of.seed, state.seed, n) end
    if state.run then count_run(of.seed, state.run, n) end
  end

  local function each_loss(state, of, act)
    if not of.example then return end
    for _, name in ipairs(state.totals) do
      if is_open(name) then act(named(name, of), of.example) end
    end
  end

  function enter(state, r, of, n)
    of, n = of or NOTHING, n or 1
    book(state, r, of, n)
    if state.is_ended then count(ctx.total, 'done', n) end
    if state.begun then count(ctx.total, state.begun, n) end
    each_loss(state, of, Losses.keep)
  end

  function leave(state, r, of, n)
    of, n = of or NOTHING, n or 1
    book(state, r, of, -n)
    if state.is_ended then
      count(ctx.total, 'added', n)
      count(ctx.total, state.back, n)
    end
    each_loss(state, of, Losses.drop)
  end
end
