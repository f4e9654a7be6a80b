-- The rules of kstatus, and Suspended for what is paused or suspended.
local status = obj.status or {}
local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end
local function health(code, condition)
  return {status = code, message = condition.message}
end
local function holds(name)
  return conditions[name] ~= nil and conditions[name].status == "True"
end
local ready, reconciled = conditions.Ready, conditions.Reconciled
if reconciled ~= nil and reconciled.reason == "Paused" then
  return health("Suspended", reconciled)
end
local observed, generation = status.observedGeneration, obj.metadata.generation
if observed ~= nil and observed ~= generation then
  local waited = holds("Reconciling") and conditions.Reconciling or {message = "the host has not decided on generation " .. generation}
  return health("Progressing", waited)
end
if holds("Stalled") then
  return health("Degraded", conditions.Stalled)
end
if holds("Reconciling") then
  return health("Progressing", conditions.Reconciling)
end
if ready ~= nil and ready.status ~= "True" then
  local codes = {Suspended = "Suspended", CrashLoop = "Degraded"}
  return health(codes[ready.reason] or "Progressing", ready)
end
return health("Healthy", reconciled or ready or {})
