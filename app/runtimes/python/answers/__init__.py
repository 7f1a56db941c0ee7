"""What classes may return, one module a task: each makes the task's prediction of it, or names what is wrong."""
