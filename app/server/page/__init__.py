"""The page that browsers get: its files, and the figures it shows, as they change.

One HTML shell and plain ES modules, without a build step. A view is one module in `static/`, registered in `frame.js`.
"""
