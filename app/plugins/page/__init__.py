"""Serve the web page: its files, and live metrics.

One HTML shell and plain ES modules, without a build step. A view is one module in `static/`, registered in `frame.js`.
"""
