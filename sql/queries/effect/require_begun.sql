-- Raises the error of an effect that a trigger of another program keeps from being recorded.
SELECT jobctl.require_written('job_effects', 1, 0)
